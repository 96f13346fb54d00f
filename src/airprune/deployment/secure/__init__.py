"""Secure sums between real devices and their edge; what travels is in `airprune.methods.secure`.

signing      who made a key: the certificates of devices sign them
device_sums  a device's side: checks keys of others, masks an update once, helps to open one sum
exchange     an edge's side of one exchange, without I/O
session      the same with links and a clock
opening      what opens a sum: kept with the round, so that the sum can be repeated
"""
