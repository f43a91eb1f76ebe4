"""The log of one partition: its segments, producer states, leader epochs, transactions and retention."""
