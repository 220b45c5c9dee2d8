"""Texts side by side: lines are aligned, changed words marked, unchanged lines folded."""

from __future__ import annotations

from nestwright.autotune.report.diff import aligned


def test_equal_texts_have_no_difference() -> None:
    assert aligned("a\nb\n", "a\nb\n") == ()


def test_changed_words_are_marked() -> None:
    (row,) = aligned("split(i, 4)", "split(i, 16)")
    assert row.kind == "changed"
    assert row.left == "split(i, <mark>4</mark>)" and row.right == "split(i, <mark>16</mark>)"


def test_added_and_removed_lines_stand_alone() -> None:
    kinds = [(r.kind, str(r.left), str(r.right)) for r in aligned("a\nx\nb", "a\nb\ny")]
    assert kinds == [
        ("same", "a", "a"),
        ("left", "x", ""),
        ("same", "b", "b"),
        ("right", "", "y"),
    ]


def test_unchanged_lines_are_folded_but_for_context() -> None:
    same = [f"line {n}" for n in range(10)]
    rows = aligned("\n".join(["a", *same, "b"]), "\n".join(["c", *same, "d"]))
    assert [r.kind for r in rows] == [
        "changed",
        *["same"] * 2,
        "fold",
        *["same"] * 2,
        "changed",
    ]
    assert rows[3].count == 6


def test_texts_are_escaped() -> None:
    (row,) = aligned("<b>", "<i>")
    assert row.left == "&lt;<mark>b</mark>&gt;" and "<i>" not in row.right


def test_lines_that_are_not_alike_are_not_compared() -> None:
    (row,) = aligned("reorder(a, b)", "x = 1")
    assert row.kind == "changed" and "<mark>" not in row.left + row.right
