"""The bill of materials of an image: its packages, what they bring along, and under which licences."""
