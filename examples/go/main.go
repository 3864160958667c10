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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
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
	seeds   []string
	brokers []string
	turn    int                // which broker is asked for metadata next
	newest  int64              // highest version of metadata so far
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
		// The default of 4 MiB is less than one record may have.
		conns[address] = must(grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20))))
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

// refresh begins at another broker each time, and takes nothing older than before: one that is cut off answers as
// promptly as any. It returns what is wrong where no broker helps.
func refresh() (problem error) {
	addresses := slices.Clone(seeds)
	for _, address := range brokers {
		if !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	for range addresses {
		address := addresses[turn%len(addresses)]
		turn++
		answer, err := call(address, "regnum.metadata.v1.MetadataService/GetMetadata", object{"topics": []string{topic}})
		if err != nil {
			problem = err // this broker is away: ask the next one
			continue
		}
		version := must(strconv.ParseInt(answer["version"].(string), 10, 64))
		if version < newest {
			continue
		}
		about := answer["topics"].([]any)[0].(object)
		found, _ := about["topic"].(object)
		partitions, _ := found["partitions"].([]any)
		if len(partitions) == 0 {
			problem = fmt.Errorf("%v", about["errorCode"]) // no such topic, or this broker has no metadata yet
			continue
		}
		newest, brokers, leaders = version, nil, map[int]string{}
		at := map[float64]string{}
		for _, one := range answer["brokers"].([]any) {
			client := one.(object)["client"].(object)
			place := fmt.Sprintf("%v:%v", client["host"], client["port"])
			at[one.(object)["id"].(float64)] = place
			brokers = append(brokers, place)
		}
		for _, one := range partitions {
			state := one.(object)
			leaders[int(state["partition"].(float64))] = at[state["leader"].(float64)]
		}
		return nil
	}
	return problem
}

// waitToRepeat follows a call that failed as a whole: it waits as RetryInfo says, or ends what no repeat helps against.
func waitToRepeat(err error) {
	failed := status.Convert(err)
	for _, detail := range failed.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			time.Sleep(info.GetRetryDelay().AsDuration())
			return
		}
	}
	if code := failed.Code(); code != codes.Unavailable && code != codes.DeadlineExceeded && code != codes.Canceled {
		must(0, err)
	}
}

func atLeader(partition int, method string, request object) object {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		if leaders[partition] != "" {
			answer, err := call(leaders[partition], "regnum.broker.v1.LogService/"+method, request)
			if err != nil {
				waitToRepeat(err)
			} else {
				time.Sleep(time.Duration(answer["throttleTimeMs"].(float64)) * time.Millisecond)
				result := answer["results"].([]any)[0].(object)
				reason := strings.TrimPrefix(result["errorCode"].(string), "ERROR_CODE_")
				if reason == "NONE" {
					return result
				}
				if !strings.Contains(" "+strings.Join(again, " ")+" ", " "+reason+" ") {
					must(0, fmt.Errorf("%s: %v", reason, result["errorMessage"]))
				}
			}
		}
		time.Sleep(pause)
		refresh()
	}
}

func producerID() object {
	for next := 0; ; next++ {
		id, err := call(brokers[next%len(brokers)], "regnum.broker.v1.ProducerService/InitProducerId", object{})
		if err == nil {
			return id
		}
		waitToRepeat(err) // a broker that is not registered says BROKER_NOT_AVAILABLE: ask the next one
		time.Sleep(100 * time.Millisecond)
	}
}

func main() {
	seeds, topic = strings.Split(os.Args[1], ","), os.Args[2]
	count := must(strconv.Atoi(os.Args[3]))
	loadProtos()
	for tries := 0; ; tries++ {
		problem := refresh()
		if problem == nil {
			break
		}
		if tries == 20 {
			must(0, fmt.Errorf("no partitions of topic %s found: %w", topic, problem))
		}
		time.Sleep(250 * time.Millisecond) // a new topic is known everywhere within seconds
	}
	id := producerID()
	sequences, ends := make([]int, len(leaders)), make([]int, len(leaders)) // ends: behind what is acknowledged
	for number := 0; number < count; number++ {
		partition := number % len(sequences)
		plain := object{"records": []object{{"value": []byte(strconv.Itoa(number))}}, "producerId": id["producerId"],
			"producerEpoch": id["producerEpoch"], "baseSequence": sequences[partition]}
		result := atLeader(partition, "Produce", object{"acks": "ACKS_ALL",
			"partitions": []object{{"topic": topic, "partition": partition, "plain": plain}}})
		sequences[partition]++
		ends[partition] = must(strconv.Atoi(result["baseOffset"].(string))) + 1
	}
	read, once := 0, map[string]bool{}
	for partition, end := range ends {
		// A new leader's high watermark may be behind at first. What has not come in a hundred waits is lost.
		for offset, waits := 0, 0; offset < end && waits < 100; waits++ {
			result := atLeader(partition, "Fetch", object{"form": "RECORD_FORM_RECORDS", "maxWaitMs": 100, "minBytes": 1,
				"maxBytes": 1 << 20, "partitions": []object{{"topic": topic, "partition": partition, "offset": offset}}})
			for _, one := range result["records"].([]any) {
				read, waits = read+1, 0
				once[one.(object)["value"].(string)] = true
				offset = must(strconv.Atoi(one.(object)["offset"].(string))) + 1
			}
			end = max(end, must(strconv.Atoi(result["highWatermark"].(string))))
			if len(result["records"].([]any)) == 0 {
				refresh() // a leader that has been replaced and does not know it has no news
			}
		}
	}
	fmt.Printf("%d acknowledged, %d read, %d lost, %d twice\n", count, read, count-len(once), read-len(once))
	if len(once) != count || read != count {
		os.Exit(1)
	}
}
