# hall.py
import random

from headwater import Event, Node, f32


class Sighting(Event):
    badge: str
    level: f32


def look() -> Sighting:
    return Sighting(badge="0a1b2c", level=random.random())


node = Node("hall", listen="127.0.0.1:7447")
node.channel("sighting", Sighting).source("door", ask=look, every=0.1)
node.run()  # until Ctrl-C or SIGTERM
