"""The web page: a small server on this machine, thin over the same calls as the command line.

    safety     access rules: Host, Origin, token, sizes; the headers of every answer
    limits     what all clients together may take: lanes for plans, places for streams, uploads
    connections   their number, and the time that one may be idle
    answers    strict JSON, and every error as one sentence
    pages      the frame around each page, the navigation
    assets     scripts and styles, compressed; charts: which script of plotly
    recorded   results that come with the package
    planner    the planner page: settings, network or fleet, plan
    runs       the runs page; starting: runs started from it
    deployment the Deployment page: fleets and runs on real machines
    results    the pages of results: overview, league, reproduction
    app        all of these as one application
    serve      a free port, and the server on it

To add a page: a `Page` in `pages.PAGES`, `static/NAME.html` (the content of <main>), `static/NAME.js`, a folder with a
`router`, and its line in `app.ROUTERS`.
"""
