"""Stands in for IPython in the browser: what is shown comes to the page."""


def get_ipython():
    return True
