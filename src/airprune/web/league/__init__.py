"""The league page: standings, picture and claims of a folder that `airprune league` has written.

views     the folder as the page shows it
routes    the addresses
"""
