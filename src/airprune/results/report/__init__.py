"""Reports: one self-contained HTML page about a run, a comparison or a reproduction.

    reading        what a folder holds, as far as it can be read
    markup         text and tables as HTML; whatever comes from a file is escaped
    page           the page around the sections
    templates/     their HTML, and their looks
    run            the sections of one run
    comparison     … of several variants over several seeds
    target         … of what it took them to reach an accuracy

A page needs no network, no script and no file beside it. The same folder gives the same bytes.
"""
