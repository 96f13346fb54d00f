"""The reproduction page: claims, verdicts and pictures of a folder that `airprune reproduce` has written.

views     the folder as the page shows it
routes    the addresses
"""
