from likewise.cli.listing_view import Listing, show_listing


def test_every_registry_is_a_table(capsys):
    found = Listing({"losses": {"Triplet": "a loss"}, "miners": {"BatchHard": "a <miner>"}})
    show_listing(found)
    out = capsys.readouterr().out
    assert all(word in out for word in ("losses", "Triplet", "a loss", "miners", "BatchHard"))
    html = found._repr_html_()
    assert html.count("<table") == 2 and "a &lt;miner&gt;" in html
