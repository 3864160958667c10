// A complete client loop: an idempotent producer and a reader that go on when a leader dies.
//
//     mvn -q package && java -cp 'target/classes:target/dependency/*' Client HOST:PORT,... TOPIC COUNT
//
// writes COUNT numbered records, each exactly once, to the partitions of TOPIC in turn, and reads them back.
import com.google.protobuf.ByteString;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.RetryInfo;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Status.Code;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import regnum.broker.v1.*;
import regnum.broker.v1.Record; // not java.lang.Record
import regnum.metadata.v1.GetMetadataRequest;
import regnum.metadata.v1.MetadataServiceGrpc;
import regnum.types.v1.ErrorCode;
import regnum.types.v1.RequestHeader;

public class Client {
    static final RequestHeader HEADER = RequestHeader.newBuilder().setClientId("example").build();
    // Codes after which the same request, with the same sequence numbers, may succeed; all others are given up.
    static final Set<ErrorCode> AGAIN = Set.of(
        ErrorCode.ERROR_CODE_UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ERROR_CODE_LEADER_NOT_AVAILABLE,
        ErrorCode.ERROR_CODE_NOT_LEADER_OR_FOLLOWER, ErrorCode.ERROR_CODE_FENCED_LEADER_EPOCH,
        ErrorCode.ERROR_CODE_UNKNOWN_LEADER_EPOCH, ErrorCode.ERROR_CODE_OFFSET_NOT_AVAILABLE,
        ErrorCode.ERROR_CODE_REQUEST_TIMED_OUT, ErrorCode.ERROR_CODE_BROKER_NOT_AVAILABLE,
        ErrorCode.ERROR_CODE_NOT_ENOUGH_REPLICAS, ErrorCode.ERROR_CODE_NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.ERROR_CODE_KAFKA_STORAGE_ERROR, ErrorCode.ERROR_CODE_THROTTLING_QUOTA_EXCEEDED);
    static final Set<Code> DEAD = Set.of(Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED);

    final Map<String, Channel> channels = new HashMap<>();
    final String topic;
    final List<String> seeds;
    List<String> brokers;
    List<String> leaders = List.of(); // address of each partition's leader; "" where it has none
    int turn = 0; // which broker is asked for metadata next
    long newest = 0; // highest version of metadata so far

    Client(String bootstrap, String topic) throws InterruptedException {
        this.seeds = this.brokers = List.of(bootstrap.split(","));
        this.topic = topic;
        for (int tries = 0; ; tries++) {
            var problem = refresh();
            if (problem.isEmpty()) return;
            if (tries == 20) throw new IllegalStateException("no partitions of topic " + topic + " found: " + problem);
            Thread.sleep(250); // a new topic is known everywhere within seconds
        }
    }

    Channel at(String address) {
        return channels.computeIfAbsent(address, to -> Grpc.newChannelBuilder(to, InsecureChannelCredentials.create())
            .maxInboundMessageSize(64 << 20).build()); // the default of 4 MiB is less than one record may have
    }

    // Begins at another broker each time, and takes nothing older than before: one that is cut off answers as promptly
    // as any. Returns what is wrong where no broker helps.
    String refresh() {
        var request = GetMetadataRequest.newBuilder().setHeader(HEADER).addTopics(topic).build();
        var all = new LinkedHashSet<>(brokers);
        all.addAll(seeds);
        var addresses = List.copyOf(all);
        var problem = "every broker answers with what was true once";
        for (int asked = 0; asked < addresses.size(); asked++) {
            try {
                var answer = MetadataServiceGrpc.newBlockingStub(at(addresses.get(turn++ % addresses.size())))
                    .withDeadlineAfter(10, TimeUnit.SECONDS).getMetadata(request);
                if (answer.getVersion() < newest) continue;
                var places = new HashMap<Integer, String>();
                for (var one : answer.getBrokersList()) {
                    places.put(one.getId(), one.getClient().getHost() + ":" + one.getClient().getPort());
                }
                var partitions = answer.getTopics(0).getTopic().getPartitionsList();
                if (partitions.isEmpty()) { // there is no such topic, or this broker has no metadata yet
                    problem = answer.getTopics(0).getErrorCode().toString();
                    continue;
                }
                var found = new String[partitions.size()];
                for (var one : partitions) found[one.getPartition()] = places.getOrDefault(one.getLeader(), "");
                newest = answer.getVersion();
                brokers = List.copyOf(places.values());
                leaders = List.of(found);
                return "";
            } catch (StatusRuntimeException away) {
                problem = away.getMessage(); // this broker is away: ask the next one
            }
        }
        return problem;
    }

    // After a call that failed as a whole: waits as RetryInfo says, or throws what no repeat helps against.
    static void waitToRepeat(StatusRuntimeException failed) throws InterruptedException {
        var status = StatusProto.fromThrowable(failed);
        for (var detail : status == null ? List.<com.google.protobuf.Any>of() : status.getDetailsList()) {
            if (!detail.is(RetryInfo.class)) continue;
            try {
                var delay = detail.unpack(RetryInfo.class).getRetryDelay();
                Thread.sleep(delay.getSeconds() * 1000 + delay.getNanos() / 1_000_000);
                return;
            } catch (InvalidProtocolBufferException unreadable) {
                throw failed;
            }
        }
        if (!DEAD.contains(failed.getStatus().getCode())) throw failed;
    }

    record Outcome<T>(ErrorCode code, String message, int throttleMs, T result) {}

    <T> T atLeader(int partition, Function<LogServiceGrpc.LogServiceBlockingStub, Outcome<T>> call) throws InterruptedException {
        for (long pauseMs = 20; ; pauseMs = Math.min(pauseMs * 2, 1000)) {
            var leader = leaders.get(partition);
            if (!leader.isEmpty()) {
                try {
                    var outcome = call.apply(LogServiceGrpc.newBlockingStub(at(leader)).withDeadlineAfter(10, TimeUnit.SECONDS));
                    if (outcome.throttleMs() > 0) Thread.sleep(outcome.throttleMs());
                    if (outcome.code() == ErrorCode.ERROR_CODE_NONE) return outcome.result();
                    if (!AGAIN.contains(outcome.code())) {
                        throw new IllegalStateException(outcome.code() + ": " + outcome.message());
                    }
                } catch (StatusRuntimeException failed) {
                    waitToRepeat(failed);
                }
            }
            Thread.sleep(pauseMs);
            refresh();
        }
    }

    InitProducerIdResponse producerId() throws InterruptedException {
        for (int turn = 0; ; turn++) {
            try {
                return ProducerServiceGrpc.newBlockingStub(at(brokers.get(turn % brokers.size())))
                    .withDeadlineAfter(10, TimeUnit.SECONDS)
                    .initProducerId(InitProducerIdRequest.newBuilder().setHeader(HEADER).build());
            } catch (StatusRuntimeException failed) {
                waitToRepeat(failed); // a broker that is not registered says BROKER_NOT_AVAILABLE: ask the next one
                Thread.sleep(100);
            }
        }
    }

    /** Returns the offset behind the record. */
    long produce(int partition, String value, int sequence, InitProducerIdResponse id) throws InterruptedException {
        var plain = PlainRecords.newBuilder().setProducerId(id.getProducerId()).setProducerEpoch(id.getProducerEpoch())
            .setBaseSequence(sequence).addRecords(Record.newBuilder().setValue(ByteString.copyFromUtf8(value)));
        var request = ProduceRequest.newBuilder().setHeader(HEADER).setAcks(Acks.ACKS_ALL)
            .addPartitions(ProducePartition.newBuilder().setTopic(topic).setPartition(partition).setPlain(plain)).build();
        return 1 + atLeader(partition, leader -> {
            var answer = leader.produce(request);
            var result = answer.getResults(0);
            return new Outcome<>(result.getErrorCode(), result.getErrorMessage(), answer.getThrottleTimeMs(),
                result.getBaseOffset());
        });
    }

    /** Reads at least up to end, which is behind what was acknowledged. */
    void read(int partition, long end, List<Integer> into) throws InterruptedException {
        long offset = 0;
        // A new leader's high watermark may be behind at first. What has not come in a hundred waits is lost.
        for (int waits = 0; offset < end && waits < 100; waits++) {
            var request = FetchRequest.newBuilder().setHeader(HEADER).setForm(RecordForm.RECORD_FORM_RECORDS)
                .setMaxWaitMs(100).setMinBytes(1).setMaxBytes(1 << 20)
                .addPartitions(FetchPartition.newBuilder().setTopic(topic).setPartition(partition).setOffset(offset)).build();
            var result = atLeader(partition, leader -> {
                var answer = leader.fetch(request);
                var found = answer.getResults(0);
                return new Outcome<>(found.getErrorCode(), found.getErrorMessage(), answer.getThrottleTimeMs(), found);
            });
            for (var record : result.getRecordsList()) {
                into.add(Integer.parseInt(record.getValue().toStringUtf8()));
                offset = record.getOffset() + 1;
                waits = 0;
            }
            end = Math.max(end, result.getHighWatermark());
            if (result.getRecordsCount() == 0) refresh(); // a leader that has been replaced and does not know it has no news
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        int count = Integer.parseInt(arguments[2]);
        var client = new Client(arguments[0], arguments[1]);
        var id = client.producerId();
        var sequences = new int[client.leaders.size()];
        var ends = new long[sequences.length];
        for (int number = 0; number < count; number++) {
            int partition = number % sequences.length;
            ends[partition] = client.produce(partition, Integer.toString(number), sequences[partition]++, id);
        }
        var read = new ArrayList<Integer>();
        for (int partition = 0; partition < sequences.length; partition++) client.read(partition, ends[partition], read);
        int once = new HashSet<>(read).size();
        System.out.printf("%d acknowledged, %d read, %d lost, %d twice%n", count, read.size(), count - once, read.size() - once);
        System.exit(once == count && read.size() == count ? 0 : 1);
    }
}
