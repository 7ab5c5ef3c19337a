"""Extension of griffe: the comment behind a field of a class, such as a named tuple, documents the field."""

import ast
import re
from typing import Any

import griffe


class FieldComments(griffe.Extension):
    """Reads the comments behind the fields of classes."""

    def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **_: Any) -> None:
        """Use the comment behind a field as its docstring, unless it has one."""
        is_field = isinstance(node, ast.AnnAssign) and attr.parent is not None and attr.parent.is_class
        if not is_field or attr.docstring is not None or attr.lineno is None:
            return
        comments = re.findall(r"# ([^#]+)", attr.lines_collection[attr.filepath][attr.lineno - 1])
        texts = [re.sub(r" \(hides [\w.]+\)", "", text).strip() for text in comments if not text.startswith("type:")]
        if texts:
            text = texts[-1][:1].upper() + texts[-1][1:]
            attr.docstring = griffe.Docstring(f"{text}." if text[-1].isalnum() else text, parent=attr)
