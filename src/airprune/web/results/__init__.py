"""The pages of results: the overview, and folders of `airprune league` and `airprune reproduce`.

folders        what both pages share: the folder to show, claims, figures, texts of bounded length
league         a league folder as its page shows it
reproduction   a reproduction folder as its page shows it
routes         the addresses
"""
