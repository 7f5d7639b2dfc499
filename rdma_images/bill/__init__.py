"""The bill of materials of an image: packages, bundled libraries, licences."""
