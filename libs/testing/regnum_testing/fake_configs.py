"""Settings as clients meet them: set by IncrementalAlterConfigs, shown by DescribeConfigs."""

from collections.abc import Collection

from regnum.admin.v1 import admin_pb2
from regnum.types.v1 import errors_pb2
from regnum_model.broker_configs import FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE
from regnum_model.configs import DEFAULTS, MIN_INSYNC_REPLICAS, TOPIC_KEYS

RATES = (FOLLOWER_THROTTLE_RATE, LEADER_THROTTLE_RATE)


class FakeConfigs:
    """Values by topic; the cluster's under the empty name."""

    def __init__(self) -> None:
        self.values: dict[str, dict[str, str]] = {"": {key: str(value) for key, value in DEFAULTS.items()}}
        self.mutations: dict[str, bytes] = {}
        """Answers by mutation id: a repeat is not carried out."""

    def alter(self, request: admin_pb2.IncrementalAlterConfigsRequest) -> admin_pb2.IncrementalAlterConfigsResponse:
        """Set and take back; a key that is none is refused."""
        answer = admin_pb2.IncrementalAlterConfigsResponse()
        if request.mutation_id in self.mutations:
            answer.ParseFromString(self.mutations[request.mutation_id])
            return answer
        for alteration in request.alterations:
            result = answer.results.add(resource=alteration.resource)
            known = TOPIC_KEYS if alteration.resource.name else {*DEFAULTS, *RATES}
            if any(config.name not in known for config in alteration.configs):
                result.error_code = errors_pb2.ERROR_CODE_INVALID_CONFIG
                result.error_message = f"a setting is one of {', '.join(sorted(known))}"
                continue
            values = self.values.setdefault(alteration.resource.name, {})
            for config in () if request.validate_only else alteration.configs:
                if config.op == admin_pb2.ALTER_CONFIG_OP_SET:
                    values[config.name] = config.value
                else:
                    values.pop(config.name, None)
        if request.mutation_id and not request.validate_only:
            self.mutations[request.mutation_id] = answer.SerializeToString()
        return answer

    def replace(self, request: admin_pb2.AlterConfigsRequest) -> admin_pb2.AlterConfigsResponse:
        """What is not named goes."""
        if request.mutation_id not in self.mutations and not request.validate_only:
            for replacement in request.replacements:
                self.values[replacement.resource.name] = {one.name: one.value for one in replacement.configs}
            self.mutations[request.mutation_id] = b""
        return admin_pb2.AlterConfigsResponse(
            results=[admin_pb2.AlterConfigsResult(resource=one.resource) for one in request.replacements]
        )

    def describe(
        self, request: admin_pb2.DescribeConfigsRequest, topics: Collection[str]
    ) -> admin_pb2.DescribeConfigsResponse:
        """The cluster, or what is asked for."""
        answer = admin_pb2.DescribeConfigsResponse()
        cluster = admin_pb2.ConfigResource(type=admin_pb2.CONFIG_RESOURCE_TYPE_BROKER)
        for resource in request.resources or (cluster,):
            result = answer.results.add(resource=resource)
            is_topic = resource.type == admin_pb2.CONFIG_RESOURCE_TYPE_TOPIC
            if is_topic and resource.name not in topics:
                result.error_code = errors_pb2.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION
                result.error_message = f"there is no topic {resource.name}"
                continue
            own = self.values.get(resource.name, {})
            keys = sorted({MIN_INSYNC_REPLICAS, *own}) if resource.name else sorted(DEFAULTS)
            for key in keys:
                of_its_own = admin_pb2.CONFIG_SOURCE_TOPIC if is_topic else admin_pb2.CONFIG_SOURCE_DYNAMIC_BROKER
                source = of_its_own if resource.name and key in own else admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER
                result.configs.add(name=key, value=own.get(key, self.values[""].get(key, "2")), source=source)
            for key in () if resource.name else (rate for rate in RATES if rate in own):
                source = admin_pb2.CONFIG_SOURCE_DYNAMIC_DEFAULT_BROKER
                result.configs.add(name=key, value=own[key], source=source)
        return answer
