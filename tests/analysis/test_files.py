"""Tables as files."""

import io

import pandas as pd
import pytest

from orchestrator.command.files import csv_bytes


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t=", "\n=", "\r="])
def test_text_that_a_spreadsheet_would_run_is_written_as_text(sign: str) -> None:
    table = pd.DataFrame({"dataset": [f"{sign}HYPERLINK(1)", "a=b"], f"{sign}x": ["", None], "loss": [-1.5, 2.0], "N": [-8, 8]})
    read = pd.read_csv(io.BytesIO(csv_bytes(table)), keep_default_na=False)
    sign = sign.replace("\r", " ")
    assert read.columns.tolist() == ["dataset", f"'{sign}x", "loss", "N"]
    assert read["dataset"].tolist() == [f"'{sign}HYPERLINK(1)", "a=b"]
    assert read["loss"].tolist() == [-1.5, 2.0]
    assert read["N"].tolist() == [-8, 8]


def test_a_table_without_such_text_is_written_as_pandas_writes_it() -> None:
    table = pd.DataFrame({"dataset": ["bumps", None], "mixed": [-1, "x"], "loss": [-1.5, float("nan")], "flag": [True, False]})
    assert csv_bytes(table) == table.to_csv(index=False).encode()
    assert csv_bytes(table.iloc[:0]) == table.iloc[:0].to_csv(index=False).encode()


@pytest.mark.parametrize("separator", [";", "\t", "; "])
def test_what_other_readers_split_at_is_in_quotes_and_stays_as_it_is(separator: str) -> None:
    cells = [f"a{separator}=SUM(1)", "1;-2;3", 'a "b"', "", "a,b\nc", "x" * 200_000]
    written = csv_bytes(pd.DataFrame({"decoder": cells})).decode()
    assert written.splitlines()[:4] == ["decoder", f'"a{separator}=SUM(1)"', '"1;-2;3"', '"a ""b"""']
    assert pd.read_csv(io.StringIO(written), keep_default_na=False)["decoder"].tolist() == cells
    numbers = pd.DataFrame({"a;b": ["x", ";"], "loss": [0.1, float("nan")], "flag": [True, False], "count": [1, 2]})
    assert csv_bytes(numbers) == b'"a;b",loss,flag,count\nx,0.1,True,1\n";",,False,2\n'
