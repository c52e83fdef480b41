#!/usr/bin/env python3
"""Writes a text and what str.lower() makes of it to two files: every character of Unicode 14 alone and beside sigmas,
one to a line. Ends with 2 where Python knows another Unicode."""
import sys
import unicodedata

if unicodedata.unidata_version != "14.0.0":
    print("Python has Unicode", unicodedata.unidata_version)
    sys.exit(2)
CONTEXTS = "{}", "{}Σ", "a{}Σ", "aΣ{}", "aΣ{}a", "a{}Σ{}a"
known = (chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Co", "Cs"))
text = "\n".join(context.replace("{}", c) for c in known for context in CONTEXTS)
for path, written in (sys.argv[1], text), (sys.argv[2], text.lower()):
    with open(path, "wb") as f:
        f.write(written.encode())
