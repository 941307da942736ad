"""Tables as files."""

import io

import pandas as pd
import pytest

from orchestrator.command.files import csv_bytes


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t=", "\n=", "\r="])
def test_text_that_a_spreadsheet_would_run_is_written_as_text(sign: str) -> None:
    table = pd.DataFrame({"dataset": [f"{sign}HYPERLINK(1)", "a=b"], f"{sign}x": ["", None], "loss": [-1.5, 2.0], "N": [-8, 8]})
    read = pd.read_csv(io.BytesIO(csv_bytes(table)), keep_default_na=False)
    sign = sign.replace("\r", " ").replace("\t", "\t'")  # some readers split lines at tabs
    assert read.columns.tolist() == ["dataset", f"'{sign}x", "loss", "N"]
    assert read["dataset"].tolist() == [f"'{sign}HYPERLINK(1)", "a=b"]
    assert read["loss"].tolist() == [-1.5, 2.0]
    assert read["N"].tolist() == [-8, 8]


def test_a_table_without_such_text_is_written_as_pandas_writes_it() -> None:
    table = pd.DataFrame({"dataset": ["bumps", None], "mixed": [-1, "x"], "loss": [-1.5, float("nan")], "flag": [True, False]})
    assert csv_bytes(table) == table.to_csv(index=False).encode()
    assert csv_bytes(table.iloc[:0]) == table.iloc[:0].to_csv(index=False).encode()


@pytest.mark.parametrize("separator", [";", "\t", "; "])
def test_nor_is_text_behind_what_other_readers_split_at(separator: str) -> None:
    written = csv_bytes(pd.DataFrame({"decoder": [f"a{separator}=SUM(1)", "a;b=1"]})).decode()
    assert written.splitlines() == ["decoder", f"a{separator}'=SUM(1)", "a;b=1"]
