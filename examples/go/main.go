// A complete client loop: an idempotent producer and a reader that go on when a leader dies.
//
//	go run . HOST:PORT,... TOPIC COUNT
//
// writes COUNT numbered records, each exactly once, to the partitions of TOPIC in turn, and reads them back. It reads
// the protos as they are, and speaks JSON of them: a service of your own would generate code instead.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

type object = map[string]any

var (
	methods = map[string]protoreflect.MethodDescriptor{} // by "package.Service/Method"
	conns   = map[string]*grpc.ClientConn{}              // by address
	brokers []string
	leaders = map[int]string{} // address of each partition's leader
	topic   string
)

// Codes after which the same request, with the same sequence numbers, may succeed; all others are given up.
var again = strings.Fields(`UNKNOWN_TOPIC_OR_PARTITION LEADER_NOT_AVAILABLE NOT_LEADER_OR_FOLLOWER FENCED_LEADER_EPOCH
	OFFSET_NOT_AVAILABLE REQUEST_TIMED_OUT BROKER_NOT_AVAILABLE NOT_ENOUGH_REPLICAS UNKNOWN_LEADER_EPOCH
	NOT_ENOUGH_REPLICAS_AFTER_APPEND KAFKA_STORAGE_ERROR THROTTLING_QUOTA_EXCEEDED`)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func loadProtos() {
	roots := &protocompile.SourceResolver{ImportPaths: []string{"../../proto"}}
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(roots)}
	files := must(compiler.Compile(context.Background(), "regnum/metadata/v1/metadata.proto",
		"regnum/broker/v1/log.proto", "regnum/broker/v1/producer.proto"))
	for _, file := range files {
		for i := 0; i < file.Services().Len(); i++ {
			service := file.Services().Get(i)
			for j := 0; j < service.Methods().Len(); j++ {
				method := service.Methods().Get(j)
				methods[string(service.FullName())+"/"+string(method.Name())] = method
			}
		}
	}
}

func call(address, name string, request object) (object, error) {
	if conns[address] == nil {
		conns[address] = must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials())))
	}
	request["header"] = object{"clientId": "example"}
	in, out := dynamicpb.NewMessage(methods[name].Input()), dynamicpb.NewMessage(methods[name].Output())
	if err := protojson.Unmarshal(must(json.Marshal(request)), in); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := conns[address].Invoke(ctx, "/"+name, in, out); err != nil {
		return nil, err
	}
	answer := object{}
	text := must(protojson.MarshalOptions{EmitUnpopulated: true}.Marshal(out))
	return answer, json.Unmarshal(text, &answer)
}

func refresh() {
	for _, address := range brokers {
		answer, err := call(address, "regnum.metadata.v1.MetadataService/GetMetadata", object{"topics": []string{topic}})
		if err != nil {
			continue // this broker is away: ask the next one
		}
		at := map[float64]string{}
		brokers = nil
		for _, one := range answer["brokers"].([]any) {
			client := one.(object)["client"].(object)
			place := fmt.Sprintf("%v:%v", client["host"], client["port"])
			at[one.(object)["id"].(float64)] = place
			brokers = append(brokers, place)
		}
		leaders = map[int]string{}
		for _, one := range answer["topics"].([]any)[0].(object)["topic"].(object)["partitions"].([]any) {
			state := one.(object)
			leaders[int(state["partition"].(float64))] = at[state["leader"].(float64)]
		}
		return
	}
}

func atLeader(partition int, method string, request object) object {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if leaders[partition] != "" {
			answer, err := call(leaders[partition], "regnum.broker.v1.LogService/"+method, request)
			switch code := status.Code(err); {
			case err == nil:
				time.Sleep(time.Duration(answer["throttleTimeMs"].(float64)) * time.Millisecond)
				result := answer["results"].([]any)[0].(object)
				reason := strings.TrimPrefix(result["errorCode"].(string), "ERROR_CODE_")
				if reason == "NONE" {
					return result
				}
				if !strings.Contains(" "+strings.Join(again, " ")+" ", " "+reason+" ") {
					must(0, fmt.Errorf("%s: %v", reason, result["errorMessage"]))
				}
			case code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled:
				must(0, err)
			}
		}
		time.Sleep(pause)
		refresh()
	}
}

func main() {
	brokers, topic = strings.Split(os.Args[1], ","), os.Args[2]
	count := must(strconv.Atoi(os.Args[3]))
	loadProtos()
	refresh()
	id := must(call(brokers[0], "regnum.broker.v1.ProducerService/InitProducerId", object{}))
	sequences := make([]int, len(leaders))
	for number := 0; number < count; number++ {
		partition := number % len(sequences)
		plain := object{"records": []object{{"value": []byte(strconv.Itoa(number))}}, "producerId": id["producerId"],
			"producerEpoch": id["producerEpoch"], "baseSequence": sequences[partition]}
		atLeader(partition, "Produce", object{"acks": "ACKS_ALL",
			"partitions": []object{{"topic": topic, "partition": partition, "plain": plain}}})
		sequences[partition]++
	}
	read, once := 0, map[string]bool{}
	for partition := range sequences {
		for offset, end := 0, 1; offset < end; {
			result := atLeader(partition, "Fetch", object{"form": "RECORD_FORM_RECORDS", "maxWaitMs": 100,
				"partitions": []object{{"topic": topic, "partition": partition, "offset": offset}}})
			for _, one := range result["records"].([]any) {
				read++
				once[one.(object)["value"].(string)] = true
				offset = must(strconv.Atoi(one.(object)["offset"].(string))) + 1
			}
			end = must(strconv.Atoi(result["highWatermark"].(string)))
		}
	}
	fmt.Printf("%d acknowledged, %d read, %d lost, %d twice\n", count, read, count-len(once), read-len(once))
	if len(once) != count || read != count {
		os.Exit(1)
	}
}
