"""The pages of results: a folder of `airprune league` or `airprune reproduce`, beside the results of the package.

folders        what both pages share: the folder to show, claims, figures, texts of bounded length
league         a league folder as its page shows it
reproduction   a reproduction folder as its page shows it
routes         the addresses of both
"""
