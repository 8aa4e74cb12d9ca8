from likewise.config import Export

import likewise
from likewise.cli.stages.export import export


def test_an_export_is_a_path_that_can_be_loaded(run):
    made = export(Export(str(run.path), to="safetensors", quiet=True))
    assert made.folder == run.path / "export-safetensors" and "model.safetensors" in made._repr_html_()
    assert likewise.load(made, device="cpu").dim == 8
