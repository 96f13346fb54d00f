"""Reports: one self-contained HTML page about a run, a comparison or a reproduction.

    reading        reads a folder, as far as it can be read
    markup         text and tables as HTML; all text from files is escaped
    page           the page around the sections
    templates/     their HTML, and their looks
    run            the sections of one run
    comparison     … of several variants over several seeds
    target         … of their costs until an accuracy

A page needs no network, no script and no file beside it. The same folder gives the same bytes.
"""
