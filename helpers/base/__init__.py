"""Leaves that depend on nothing else here: the machine, facts of GPUs, tables, words, colours."""
