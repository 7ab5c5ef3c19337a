"""The Java class of docs/onnx.md compiles against the part of the API of ONNX Runtime that it uses.

The library itself is not installed by the tests, so the class is compiled against declarations of the same methods. It
is not run.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DECLARATIONS = {
    "OrtException": "public class OrtException extends Exception {}",
    "OnnxValue": """public interface OnnxValue extends AutoCloseable {
        Object getValue() throws OrtException;
        void close();
    }""",
    "OnnxTensorLike": "public abstract class OnnxTensorLike implements OnnxValue {}",
    "OnnxTensor": """public abstract class OnnxTensor extends OnnxTensorLike {
        public static OnnxTensor createTensor(OrtEnvironment e, Object data) throws OrtException { return null; }
    }""",
    "OrtEnvironment": """public abstract class OrtEnvironment {
        public static OrtEnvironment getEnvironment() { return null; }
        public abstract OrtSession createSession(String path) throws OrtException;
    }""",
    "OrtSession": """public abstract class OrtSession implements AutoCloseable {
        public abstract Result run(java.util.Map<String, ? extends OnnxTensorLike> inputs) throws OrtException;
        public abstract void close() throws OrtException;
        public abstract static class Result implements AutoCloseable {
            public abstract java.util.Optional<OnnxValue> get(String name);
            public abstract void close();
        }
    }""",
}


@pytest.mark.skipif(shutil.which("javac") is None, reason="javac is not installed")
def test_the_class_of_the_page_compiles(tmp_path):
    (code,) = re.findall(r"```java\n(.*?)```", (ROOT / "docs" / "onnx.md").read_text(), re.DOTALL)
    package = tmp_path / "ai" / "onnxruntime"
    package.mkdir(parents=True)
    for name, text in DECLARATIONS.items():
        (package / f"{name}.java").write_text(f"package ai.onnxruntime;\n{text}\n")
    (tmp_path / "Score.java").write_text(code)
    command = ["javac", "-Xlint:all", "-Xlint:-serial", "-Werror", "-d", "out", "Score.java"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "Score.class").exists()
