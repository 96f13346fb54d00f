"""Reads device tables as CSV or JSON with the line of every fault, and writes them atomically as CSV.

    source ──► blocks of text ──► rows (csv_text | json_text) ──► chunks ──► one array per column

source     a file or stream as UTF-8 text, block by block
csv_text   the rows of a CSV text
json_text  the rows of a JSON text
header     the known columns among the names of a table
columns    the values of a column, its cells as an array and in messages
read       `read_table`, which joins these stages, and its result
write      files that appear whole or not at all

Every stage is bounded: a block is 256 KiB, a line or a JSON object about 64 KiB, a chunk some thousand rows.
So `/dev/zero`, a terabyte without a newline or an endless row is refused after a block or two, and a good
table costs little more memory than its arrays.
"""

from airprune.tables.columns import Column
from airprune.tables.read import Table, read_table
from airprune.tables.write import write_csv, write_csv_atomic, write_text_atomic

__all__ = ["Column", "Table", "read_table", "write_csv", "write_csv_atomic", "write_text_atomic"]
