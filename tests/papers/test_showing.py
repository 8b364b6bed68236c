import pandas as pd

from fairfrontier.runtime.text_file import to_csv
from papers.showing import show_reproduced


def test_ours_are_shown_beside_published_numbers_in_eighty_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    row = {"table": "fair-regression.adult", "row": "budro without sources", "n_splits": 10}
    row |= {"measure": "logistic_loss_nats", "published_mean": 0.5, "ours_mean": 0.25}
    row |= {"published_spread": 0.125, "ours_sd": 0.0625}
    (tmp_path / "published.csv").write_bytes(to_csv(pd.DataFrame([row])))
    facts = {"study": "adult", "folder": str(tmp_path), "fits": 1, "trained": 1, "seconds": 0.0}
    show_reproduced({**facts, "skipped": {}})
    shown = capsys.readouterr().out.replace("\N{NO-BREAK SPACE}", " ")
    assert "0.500 ± 0.125" in shown
    assert "0.250 ± 0.062" in shown
    assert "without sources" in shown
    assert "Omitted for lack of space: splits, table." in shown
