"""Lines are returned complete, once, and as they arrive, until the end or until they are stopped."""

import os
import signal
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imondrian.tables.followed_file import FollowedFile
from imondrian.tables.lines import Lines, Pipe, Restart

TEXTS = st.lists(st.binary(max_size=8).filter(lambda text: b"\n" not in text and not text.endswith(b"\r")), max_size=20)


@given(texts=TEXTS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=40), has_end=st.booleans())
def test_every_line_is_returned_once_however_the_bytes_arrive(texts, sizes, has_end):
    content = b"\n".join(texts) + (b"\n" if has_end and texts else b"")
    reader, writer = os.pipe()
    batches = Lines(Pipe(reader)).batches()
    first = 0
    for size in sizes:
        os.write(writer, content[first : first + size])
        first += size
    os.write(writer, content[first:])
    os.close(writer)
    got = [line for batch in batches for line in batch.lines]
    os.close(reader)
    expected = content.split(b"\n")
    assert got == (expected[:-1] if expected[-1] == b"" else expected)


def test_a_growing_file_is_followed_and_a_truncated_one_is_read_again(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\nb")
    followed = FollowedFile(str(path), os.open(path, os.O_RDONLY))
    lines = Lines(followed)
    batches = lines.batches()
    assert next(batches)[:2] == ([b"a"], 2)
    with path.open("ab") as file:
        file.write(b"c\r\nd\ne")
    assert next(batches)[:4] == ([b"bc", b"d"], 8, b"a\nbc\r\nd\n", None)
    path.write_bytes(b"x\n")  # the unfinished line is lost too
    assert next(batches).restart is Restart.TRUNCATED
    assert next(batches)[:2] == ([b"x"], 2)
    lines.stop()
    assert list(batches) == []
    followed.close()


def test_a_position_beyond_the_end_means_a_truncated_file(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\n")
    descriptor = os.open(path, os.O_RDONLY)
    os.lseek(descriptor, 10**12, os.SEEK_SET)
    followed = FollowedFile(str(path), descriptor)
    wake_up, writer = os.pipe()
    timer = threading.Timer(10.0, os.write, (writer, b"x"))  # do not wait forever
    timer.start()
    assert [followed.next_block(wake_up), followed.next_block(wake_up)] == [Restart.TRUNCATED, b"a\n"]
    timer.cancel()
    for opened in (wake_up, writer):
        os.close(opened)
    followed.close()


def test_every_file_that_had_the_name_is_read_even_by_a_slow_reader(tmp_path):
    path = tmp_path / "log"
    content = b"a\n" * 100_000
    path.write_bytes(content)
    followed = FollowedFile(str(path), os.open(path, os.O_RDONLY))
    never, _ = pipe = os.pipe()
    blocks = [followed.next_block(never)]
    for i, letter in enumerate((b"b", b"c")):
        path.rename(tmp_path / f"log.{i}")
        path.write_bytes(letter * 3)
        blocks.append(followed.next_block(never))  # the name is looked up with each block
    while blocks[-1] != b"ccc":
        blocks.append(followed.next_block(never))
    first = blocks.index(Restart.REPLACED)
    assert b"".join(blocks[:first]) == content
    assert blocks[first:] == [Restart.REPLACED, b"bbb", Restart.REPLACED, b"ccc"]
    followed.close()
    for descriptor in pipe:
        os.close(descriptor)


def test_the_last_line_of_a_replaced_file_needs_no_line_end(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a\nb")
    followed = FollowedFile(str(path), os.open(path, os.O_RDONLY))
    lines = Lines(followed)
    batches = lines.batches()
    assert next(batches).lines == [b"a"]
    path.rename(tmp_path / "log.1")
    path.write_bytes(b"c\n")
    assert next(batches).lines == [b"b"]
    assert next(batches).restart is Restart.REPLACED
    assert next(batches).lines == [b"c"]
    lines.stop()
    assert list(batches) == []
    followed.close()


def test_stop_ends_the_waiting_and_drops_an_unfinished_line():
    reader, writer = os.pipe()
    lines = Lines(Pipe(reader))
    batches = lines.batches()
    os.write(writer, b"a\nb")
    assert next(batches)[:2] == ([b"a"], 2)
    threading.Timer(0.05, lines.stop).start()
    assert list(batches) == []  # an unfinished line is not a line
    os.write(writer, b"c\n")
    assert os.read(reader, 10) == b"c\n"  # nothing more is read from the pipe
    os.close(writer)


def test_a_signal_that_does_not_interrupt_the_wait_is_handled():
    """A signal just before the wait sets a flag, and the wait begins; so does a signal for another thread."""
    reader, writer = os.pipe()
    lines, is_late = Lines(Pipe(reader)), threading.Event()

    def send_signal():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        time.sleep(5.0)
        is_late.set()
        os.close(writer)  # ends the wait if the signal did not

    earlier = signal.signal(signal.SIGUSR1, lambda *_: lines.stop())
    thread = threading.Thread(target=send_signal)
    try:
        thread.start()
        assert list(lines.batches()) == []
        assert not is_late.is_set()
    finally:
        thread.join()
        signal.signal(signal.SIGUSR1, earlier)
        os.close(reader)


def test_long_lines_and_many_lines_are_returned(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 5_000_000 + b"\n" + b"y\n" * 3000)
    descriptor = os.open(path, os.O_RDONLY)
    batches = list(Lines(Pipe(descriptor)).batches())
    os.close(descriptor)
    assert [len(line) for batch in batches for line in batch.lines] == [5_000_000] + [1] * 3000
    assert max(len(batch.lines) for batch in batches) <= 1024
    assert batches[-1].position == path.stat().st_size


def test_an_unreadable_source_raises(tmp_path):
    descriptor = os.open(tmp_path, os.O_RDONLY)
    with pytest.raises(IsADirectoryError):
        list(Lines(Pipe(descriptor)).batches())
    os.close(descriptor)


def test_the_reader_does_not_read_far_ahead():
    reader, writer = os.pipe()
    batches = Lines(Pipe(reader)).batches()
    done = threading.Event()

    def flood():
        for _ in range(200):
            os.write(writer, b"x" * 9_999 + b"\n")
        done.set()
        os.close(writer)

    threading.Thread(target=flood, daemon=True).start()
    n_lines = len(next(batches).lines)
    time.sleep(0.2)
    assert not done.is_set()  # 2 MB do not fit into the blocks that are read ahead
    n_lines += sum(len(batch.lines) for batch in batches)
    assert n_lines == 200


def test_an_unexpected_error_of_a_source_is_raised_too():
    class Broken:
        can_be_read_again = False

        def next_block(self, _wake_up):
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(Lines(Broken()).batches())


def test_descriptors_above_1023_are_read(tmp_path):
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2_048:
        pytest.skip("the system allows fewer descriptors")
    (tmp_path / "rows.csv").write_bytes(b"1\n2\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    opened = []
    try:
        while not opened or opened[-1] < 1_024:
            opened.append(os.open(tmp_path / "rows.csv", os.O_RDONLY))
        assert [line for batch in Lines(Pipe(opened[-1])).batches() for line in batch.lines] == [b"1", b"2"]
        lines = Lines(FollowedFile(str(tmp_path / "rows.csv"), os.open(tmp_path / "rows.csv", os.O_RDONLY)))
        batches = lines.batches()
        assert next(batches).lines == [b"1", b"2"]
        lines.stop()
        assert list(batches) == []
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
