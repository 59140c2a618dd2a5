"""Tables of other benchmarks as rows of one kind: one module a format, pure, text in and rows out.

`tables.read_table` detects the format and reads; nothing here knows a file, HTTP or a database.
"""
