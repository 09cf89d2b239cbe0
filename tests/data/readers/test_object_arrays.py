import builtins
import gzip
import io
import operator
import os
import pickle
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest

from data import DataError
from data.readers.object_arrays import read_array, read_arrays, read_object_array


def objects(*arrays):
    """An object array, also of arrays of equal length."""
    found = np.empty(len(arrays), object)
    found[:] = arrays
    return found


def header(shape, descr="|O"):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue()


def object_file(folder, pickled, shape=(1,)):
    path = folder / "articles.npy"
    path.write_bytes(header(shape) + pickled)
    return path


ARRAYS = (
    np.arange(5, dtype=np.int32),
    np.array([7], np.int32),
    np.zeros(0, np.int32),
    np.arange(200, 203, dtype=">i8"),
)


@pytest.mark.parametrize("protocol", range(5))  # np.save never wrote the fifth
def test_arrays_of_every_protocol_come_back_with_their_dtypes(tmp_path, protocol):
    found = read_object_array(object_file(tmp_path, pickle.dumps(objects(*ARRAYS), protocol), (4,)))
    assert [(array.dtype, array.tolist()) for array in found] == [(array.dtype, array.tolist()) for array in ARRAYS]


@pytest.mark.parametrize("suffix", [".npy", ".npy.gz"])
def test_what_numpy_saves_comes_back(tmp_path, suffix):
    path = tmp_path / f"articles{suffix}"
    with (gzip.open if suffix.endswith("gz") else open)(path, "wb") as stream:
        np.save(stream, objects(np.arange(6).reshape(2, 3).T, np.array([1.5], np.float16), np.array([True, False])))
    found = read_object_array(path)
    assert [array.tolist() for array in found] == [[[0, 3], [1, 4], [2, 5]], [1.5], [True, False]]
    assert [array.dtype for array in found] == [np.int64, np.float16, bool]


def test_bytes_of_python_2_are_read(tmp_path):
    made = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntS'b'\ntR(I1\n(I%d\ntcnumpy\ndtype\n"
    of_numbers = made % 2 + b"(S'i4'\nI0\nI1\ntR(I3\nS'<'\ntbI00\nU\x08\x01\0\0\0\xfe\0\0\0tb"
    pickled = made % 1 + b"(S'O8'\nI0\nI1\ntR(I3\nS'|'\ntbI00\n(l" + of_numbers + b"atb."
    assert [array.tolist() for array in read_object_array(object_file(tmp_path, pickled))] == [[1, 254]]


class Call:
    """Pickled as a call."""

    def __init__(self, function, *arguments):
        self.function = function
        self.arguments = arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, f"{os.system.__module__}.system"),
        (builtins.eval, r"(__builtin__|builtins)\.eval"),
        (builtins.getattr, r"(__builtin__|builtins)\.getattr"),
        (operator.attrgetter, r"(operator|_operator)\.attrgetter"),
        (np.fromfile, r"numpy\S*\.fromfile"),
        (np.lib.format.open_memmap, r"numpy\.lib\S*\.open_memmap"),
    ],
)
def test_a_pickle_that_calls_anything_else_is_refused_with_its_name(tmp_path, function, name, nested, protocol):
    made = tmp_path / "made"
    argument = f"touch {made}" if function is os.system else f"open({str(made)!r}, 'w')"
    call = Call(function, argument)
    pickled = pickle.dumps(objects(ARRAYS[0], [("inside", call)]) if nested else call, protocol)
    path = object_file(tmp_path, pickled, (2,))
    with pytest.raises(
        DataError, match=rf"^{re.escape(str(path))} .* its pickle calls {name}: refused; no code was run"
    ):
        read_object_array(path)
    assert not made.exists()


def test_attributes_of_what_is_admitted_stay_out_of_reach(tmp_path):
    for name in (b"ndarray.__class__", b"dtype.__init__", b"ndarray\n__globals__"):
        pickled = b"\x80\x04\x8c\x05numpy\x8c" + bytes([len(name)]) + name + b"\x93."
        with pytest.raises(DataError, match="its pickle calls numpy"):
            read_object_array(object_file(tmp_path, pickled))


def test_a_pickle_cannot_change_what_is_admitted(tmp_path):
    # BUILD with (None, {attribute: value}) sets attributes, of a class as well.
    for name in (b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"c_codecs\nencode\n"):
        with pytest.raises(DataError, match="is not an array of plain arrays"):
            read_object_array(object_file(tmp_path, name + b"(N(dS'__setstate__'\nNstb."))
    test_arrays_of_every_protocol_come_back_with_their_dtypes(tmp_path, 2)


def test_a_made_up_dtype_does_not_turn_bytes_into_objects(tmp_path):
    # Flags of 0 on a dtype of objects would have NumPy take the eight bytes for an address.
    pickled = pickle.dumps(objects(np.array([1], np.int64)), 2)
    assert pickled.count(b"i8") == 1
    hostile = pickled.replace(b"i8", b"O8")
    with pytest.raises(DataError, match=r"an element is an array of <O8, expected numbers"):
        read_object_array(object_file(tmp_path, hostile))


def test_small_pickles_of_endless_texts_are_refused(tmp_path):
    """Tuples of twice the same tuple, 60 deep: their text has 2^60 parts."""
    endless = b"Nqd" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(100, 160))
    array = pickle.dumps(objects(np.array([1], np.int64)), 2)
    for text in (b"X\x02\x00\x00\x00i8", b"X\x01\x00\x00\x00<"):
        assert array.count(text) == 1
        with pytest.raises(DataError, match=r"an element is an array of .*tuple.*, expected numbers"):
            read_object_array(object_file(tmp_path, array.replace(text, endless)))


def test_a_tuple_too_deep_for_its_hash_is_refused(tmp_path):
    deep = b"\x80\x02}N" + b"\x85" * 1_000_000 + b"Ns."
    with pytest.raises(DataError, match="its pickle has the opcode EMPTY_DICT, which arrays do not need"):
        read_object_array(object_file(tmp_path, deep))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (objects("text"), "an element is str, expected a plain array"),
        (objects({"a": 1}), "its pickle has the opcode EMPTY_DICT, which arrays do not need"),
        (objects([1]), "an element is list, expected a plain array"),
        (objects(np.array(["a"])), "an element is an array of <U1, expected numbers"),
        (objects(objects(np.arange(2))), "an element is an array of |O8, expected numbers"),
        (objects(np.zeros(2, np.complex128)), "an element is an array of <c16, expected numbers"),
        ([np.arange(3)], "its pickle is not an array of objects"),
        (np.arange(3), "its pickle is not an array of objects"),
        (np.dtype("i4"), "its pickle is not an array of objects"),
        (objects(*ARRAYS), "its header says 1 elements, but its pickle has 4"),
        (objects(), "its header says 1 elements, but its pickle has 0"),
    ],
)
def test_a_pickle_of_something_else_is_refused(tmp_path, value, message):
    path = object_file(tmp_path, pickle.dumps(value, 2))
    with pytest.raises(DataError, match=re.escape(message)):
        read_object_array(path)


def test_every_cut_and_every_changed_byte_is_refused_or_gives_plain_arrays(tmp_path):
    pickled = pickle.dumps(objects(*ARRAYS[:2]), 2)
    generator = np.random.default_rng(0)
    flipped = [bytearray(pickled) for _ in pickled]
    for i, content in enumerate(flipped):
        content[i] ^= int(generator.integers(1, 256))
    refused = 0
    for content in [*(pickled[:i] for i in range(len(pickled))), *map(bytes, flipped)]:
        try:
            found = read_object_array(object_file(tmp_path, content, (2,)))
        except DataError:
            refused += 1
        else:
            assert all(type(array) is np.ndarray and array.dtype.kind in "biuf" for array in found)
    assert refused > len(pickled)


def test_claims_of_a_great_size_take_no_memory(tmp_path):
    table = b"\x80\x02N" + b"r" + (2**31).to_bytes(4, "little") + b"."
    for damaged in (table, b"I1\np20000000\n."):
        with pytest.raises(DataError, match="its pickle is damaged"):
            read_object_array(object_file(tmp_path, damaged))
    with pytest.raises(DataError, match="its header says 1099511627776 elements, but its pickle has 4"):
        read_object_array(object_file(tmp_path, pickle.dumps(objects(*ARRAYS), 2), (2**40,)))
    path = tmp_path / "plain.npy"
    path.write_bytes(header((2**40,), "<i4") + bytes(8))
    with pytest.raises(DataError, match=r"shape \(1099511627776,\) of int32 does not fit the 8 bytes in it"):
        read_array(path)


def test_no_more_is_read_than_the_limit(tmp_path):
    path = tmp_path / "zeros.npy.gz"
    with gzip.open(path, "wb") as stream:
        np.save(stream, np.zeros(10**6, np.int8))
    for read in (read_array, read_object_array):
        with pytest.raises(DataError, match="more than 1000 bytes uncompressed"):
            read(path, max_bytes=1000)
    assert read_array(path, max_bytes=1_000_200).shape == (10**6,)
    np.savez_compressed(tmp_path / "zeros.npz", zeros=np.zeros(10**6, np.int8))
    with pytest.raises(DataError, match="more than 1000 bytes uncompressed"):
        read_arrays(tmp_path / "zeros.npz", ["zeros"], max_bytes=1000)


def test_one_array_many_times_counts_as_many(tmp_path):
    path = object_file(tmp_path, pickle.dumps(objects(*[ARRAYS[0]] * 1000), 2), (1000,))
    assert len(read_object_array(path)) == 1000
    with pytest.raises(DataError, match="more than 19999 bytes of arrays"):
        read_object_array(path, max_bytes=19_999)


@pytest.mark.parametrize("array", [np.array(["a", "çé"]), np.arange(6.0).reshape(2, 3), np.array(5, np.uint8)])
def test_plain_arrays_come_back(tmp_path, array):
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", one=array, other=np.arange(2))
    with gzip.open(tmp_path / "a.npy.gz", "wb") as stream:
        np.save(stream, array)
    for found in (
        read_array(tmp_path / "a.npy"),
        read_array(tmp_path / "a.npy.gz"),
        read_arrays(tmp_path / "a.npz", ["one"])["one"],
    ):
        assert (found.dtype, found.tolist()) == (array.dtype, array.tolist())


def test_a_plain_array_is_no_object_array_nor_the_other_way_round(tmp_path):
    np.save(tmp_path / "plain.npy", np.arange(3))
    with pytest.raises(DataError, match=r"array of objects, got shape \(3,\), dtype int64"):
        read_object_array(tmp_path / "plain.npy")
    np.save(tmp_path / "square.npy", np.full((2, 2), None))
    with pytest.raises(DataError, match=r"one-dimensional array of objects, got shape \(2, 2\)"):
        read_object_array(tmp_path / "square.npy")
    with pytest.raises(DataError, match="it contains Python objects"):
        read_array(tmp_path / "square.npy")
    np.savez(tmp_path / "both.npz", plain=np.arange(3), objects=objects(*ARRAYS))
    assert list(read_arrays(tmp_path / "both.npz", ["plain"])) == ["plain"]
    with pytest.raises(DataError, match="it contains Python objects"):
        read_arrays(tmp_path / "both.npz", ["plain", "objects"])


def test_an_array_that_is_missing_is_named_next_to_the_known_ones(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, inp=np.arange(2), other=np.arange(2))
    message = f"{path}: the array 'out' is missing; it has inp, other; expected the arrays inp, out"
    with pytest.raises(DataError, match=re.escape(message)):
        read_arrays(path, ["inp", "out"])


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"PK\x03\x04", b"\x1f\x8b\x08", b"text", header((3,), "<i4")])
def test_files_of_another_kind_are_refused_by_name(tmp_path, content):
    for name, read in (
        ("a.npy", read_array),
        ("a.npy.gz", read_array),
        ("a.npy", read_object_array),
        ("a.npy.gz", read_object_array),
        ("a.npz", lambda path: read_arrays(path, ["inp"])),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(DataError, match=re.escape(str(path))):
            read(path)


def test_damaged_archives_are_refused_by_name(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("inp.npy", b"nothing")
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "a.npz"))):
        read_arrays(tmp_path / "a.npz", ["inp"])


def test_a_missing_file_is_named(tmp_path):
    for read in (read_array, read_object_array, lambda path: read_arrays(path, [])):
        with pytest.raises(FileNotFoundError, match=re.escape(f"the NumPy file {tmp_path / 'absent.npy'}")):
            read(tmp_path / "absent.npy")


@pytest.mark.realdata
@pytest.mark.parametrize(("name", "articles", "words"), [("train.npy.gz", 579, 2_075_677), ("valid.npy", 59, 216_347)])
def test_the_homeworks_arrays_are_those_that_numpy_unpickles(name, articles, words):
    path = Path(os.environ["JAXNLP_DATA"]) / "cmu11785_hw4p1" / "dataset" / f"wiki.{name}"
    found = read_object_array(path)
    with (gzip.open if name.endswith("gz") else open)(path, "rb") as stream:
        expected = np.load(stream, allow_pickle=True, encoding="latin1")
    assert (len(found), sum(map(len, found))) == (articles, words)
    for array, its_expected in zip(found, expected, strict=True):
        assert array.dtype == its_expected.dtype == np.int32
        np.testing.assert_array_equal(array, its_expected)
