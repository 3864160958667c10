"""What may have been meant by a name that does not exist."""

import pytest
from regnum_model.config_changes import Alteration, Operation, Resource, ResourceType, check_alteration, own_settings
from regnum_model.rejection import Rejection
from regnum_model.spelling import did_you_mean, nearest


def test_what_is_alike_is_named_whatever_the_case_and_nothing_else() -> None:
    assert nearest("Orders", ["orders", "payments"]) == "orders"
    assert nearest("retention.sm", ["retention.ms", "segment.bytes"]) == "retention.ms"
    assert nearest("invoices", ["orders", "payments"]) == ""
    assert did_you_mean("ordrs", ["orders"]) == "; did you mean 'orders'?"
    assert did_you_mean("invoices", ["orders"]) == ""


@pytest.mark.parametrize("resource", [Resource(type=ResourceType.TOPIC, name="t"), Resource(type=ResourceType.CLUSTER)])
def test_a_setting_that_does_not_exist_is_answered_with_one_that_is_alike(resource: Resource) -> None:
    wrong = Operation(key="retention.sm", value="5")
    refused = check_alteration(Alteration(resource=resource, operations=(wrong,)), repeated=frozenset())
    assert refused is not None
    assert "has no setting 'retention.sm'; did you mean 'retention.ms'? choose from" in refused.message


def test_a_new_topic_is_told_the_same() -> None:
    refused = own_settings([("min.isr.replicas", "2")])
    assert isinstance(refused, Rejection)
    assert "did you mean 'min.insync.replicas'?" in refused.message
