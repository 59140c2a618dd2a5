"""Records that service and worker speak: contenders, cases, cells, jobs, runs, and the error tree.

Standard library, pydantic, packaging only; no I/O but reading the checked-in catalogue.
"""
