"""What all services mean by a word: ids, epochs, the topic-name rule, store paths and the JSON of their nodes.

Pure: no I/O, no clock, no chance.
"""
