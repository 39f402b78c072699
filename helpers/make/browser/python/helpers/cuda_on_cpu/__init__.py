"""Stands in for the CPU backend in the browser, which has but its scanner."""
