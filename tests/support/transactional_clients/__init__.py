"""Stock clients with transactions behind one small face, so that one set of tests speaks for all of them.

`interface` says what a family of clients can be asked for; each of the other modules answers with one stock client.
"""
