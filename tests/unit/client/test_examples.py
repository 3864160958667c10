"""Every public class of the SDK shows how it is used; with a cluster the examples are run."""

from regnum_testing.sdk_examples import examples


def test_every_public_class_has_an_example() -> None:
    found = list(examples({}))
    assert len(found) > 50
    assert [example.name for example in found if not example.examples] == []
