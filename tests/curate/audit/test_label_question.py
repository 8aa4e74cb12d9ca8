from likewise.curate.audit.label_question import LabelQuestion


def test_name_and_advice_of_a_question():
    one = LabelQuestion(3, "red|ish", "missing", 0.9, "flagged")
    assert one.item == "3:red|ish" and one.advice == "add"
    assert one._replace(kind="superfluous").advice == "remove" and one._replace(state="ok").advice == "keep"
