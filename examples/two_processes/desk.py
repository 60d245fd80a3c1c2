# desk.py
from headwater import Event, Node, f32


class Sighting(Event):
    badge: str
    level: f32


node = Node("desk", connect="127.0.0.1:7447")
node.channel("sighting", Sighting).subscribe(print, "level > 0.5")
node.run()
