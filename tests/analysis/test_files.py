"""Tables as files."""

import csv
import io

import pandas as pd
import pytest

from orchestrator.command.files import csv_bytes


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t=", "\n=", "\r=", "\0="])
def test_text_that_a_spreadsheet_would_run_is_written_as_text(sign: str) -> None:
    table = pd.DataFrame({"dataset": [f"{sign}HYPERLINK(1)", "a=b"], f"{sign}x": ["", None], "loss": [-1.5, 2.0], "N": [-8, 8]})
    read = pd.read_csv(io.BytesIO(csv_bytes(table)), keep_default_na=False)
    sign = {"\r=": "' =", "\0=": "' =", "\t=": "\t'=", "\n=": "\n'="}.get(sign, f"'{sign}")
    assert read.columns.tolist() == ["dataset", f"{sign}x", "loss", "N"]
    assert read["dataset"].tolist() == [f"{sign}HYPERLINK(1)", "a=b"]
    assert read["loss"].tolist() == [-1.5, 2.0]
    assert read["N"].tolist() == [-8, 8]


def test_a_table_without_such_text_is_written_as_pandas_writes_it() -> None:
    table = pd.DataFrame({"dataset": ["bumps", None], "mixed": [-1, "x"], "loss": [-1.5, float("nan")], "flag": [True, False]})
    assert csv_bytes(table) == table.to_csv(index=False).encode()
    assert csv_bytes(table.iloc[:0]) == table.iloc[:0].to_csv(index=False).encode()


@pytest.mark.parametrize(
    "cell", ["a;=SUM(1)", "x\t+1-2", "a; @B", "a;\t=1", 'a;"=1"', 'a;""=1', "a\n=1", "a;-1e", "1;-2", "b,;=1"]
)
def test_no_reader_that_splits_at_semicolons_or_tabs_finds_a_formula(cell: str) -> None:
    written = csv_bytes(pd.DataFrame({"N": [16], "dataset": [cell], "family": ["5+cmd|' /C calc'!A0"]})).decode()
    assert pd.read_csv(io.StringIO(written))["dataset"].str.replace("'", "").tolist() == [cell]
    for separator in ";\t":
        for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE):
            for line in csv.reader(io.StringIO(written, newline=""), delimiter=separator, quoting=quoting):
                assert not [found for found in line if found.lstrip(' \t\n"').startswith(("=", "+", "-", "@"))]


def test_text_that_is_no_formula_stays_as_it_is() -> None:
    cells = ["1;-2;3", "1; -2.5;+3e-5;4", "x\t-3\tm", "a;b", "a-b; c=d", 'a "b"', "", "a,b\nc", "x" * 200_000]
    written = csv_bytes(pd.DataFrame({"decoder": cells, "a;b": 1.5}))
    read = pd.read_csv(io.BytesIO(written), keep_default_na=False)
    assert read["decoder"].tolist() == cells
    assert read["a;b"].tolist() == [1.5] * len(cells)


def test_half_a_letter_and_any_name_cost_no_table() -> None:
    names = pd.Index(["\ud800", "self", "cls", "N"], dtype=object)
    table = pd.DataFrame([[1.5, "x", "\udfff", 8.0], [2.5, "y", 1, 16.0]], columns=names, dtype=object)
    assert csv_bytes(table, ("N",)) == b"\\ud800,self,cls,N\n1.5,x,\\udfff,8\n2.5,y,1,16\n"
    counted = pd.DataFrame({"self": [1.0, None]})
    assert csv_bytes(counted, ("self",)) == b'self\n1\n""\n'
    assert counted["self"].dtype == float, "the table itself stays as it is"
