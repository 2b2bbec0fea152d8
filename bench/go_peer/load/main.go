// Command load asks servers as the autoscaler does, with grpc-go and one connection for each of them. It reads orders
// from its input, one JSON object a line, and answers each with one: what the calls took, or why there are none.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"cloudgraft.example/go_peer/fleet"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
)

const patience = 5 * time.Second // the autoscaler's own

type order struct {
	Do           string `json:"do"` // connect, answer, calls, churn
	Server       string `json:"server"`
	Address      string `json:"address"`
	Certificates string `json:"certificates"` // directory; plaintext without
	RPC          string `json:"rpc"`
	First        int    `json:"first"` // of the nodes or groups, which are gone through round and round
	Calls        int    `json:"calls"`
	Callers      int    `json:"callers"` // at a time
	Churn        int    `json:"churn"`   // steps per second; 0 for an end
}

type result struct {
	Error     string          `json:"error,omitempty"`
	Answer    json.RawMessage `json:"answer,omitempty"`
	Seconds   float64         `json:"seconds"` // from the first call to the last answer
	Micros    []float64       `json:"micros"`  // of each call, in no order
	Errors    int             `json:"errors"`
	LastError string          `json:"lastError"`
	Created   int             `json:"created"` // by the churn that ended
	Deleted   int             `json:"deleted"`
}

func main() {
	file := flag.String("fleet", "", "the fleet, JSON")
	flag.Parse()
	machines, err := fleet.Read(*file)
	if err != nil {
		log.Fatal(err)
	}
	asking := &asking{fleet: machines, servers: map[string]*server{}}
	orders, answers := bufio.NewScanner(os.Stdin), json.NewEncoder(os.Stdout)
	for orders.Scan() {
		var next order
		found := &result{}
		err := json.Unmarshal(orders.Bytes(), &next)
		if err == nil {
			found, err = asking.obey(next)
		}
		if err != nil {
			found = &result{Error: err.Error()}
		}
		if err := answers.Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}

type asking struct {
	fleet   *fleet.Fleet
	servers map[string]*server
}

func (a *asking) obey(next order) (*result, error) {
	if next.Do == "connect" {
		connected, err := connect(next.Address, next.Certificates)
		a.servers[next.Server] = connected
		return &result{}, err
	}
	server := a.servers[next.Server]
	if server == nil {
		return nil, fmt.Errorf("not connected to %q", next.Server)
	}
	switch next.Do {
	case "answer":
		return a.answer(server, next)
	case "calls":
		return a.calls(server, next), nil
	case "churn":
		return server.setChurn(a.fleet, next.Churn), nil
	}
	return nil, fmt.Errorf("no order: %q", next.Do)
}

// answer makes one call, to look at what it answers.
func (a *asking) answer(server *server, next order) (*result, error) {
	answer, err := a.call(server, next.RPC, next.First)
	if err != nil {
		return nil, err
	}
	text, err := protojson.Marshal(answer)
	return &result{Answer: text}, err
}

// calls makes so many calls, so many at a time.
func (a *asking) calls(server *server, next order) *result {
	found := &result{Micros: make([]float64, next.Calls)}
	var number atomic.Int64
	var waiting sync.WaitGroup
	var lock sync.Mutex
	began := time.Now()
	for range next.Callers {
		waiting.Go(func() {
			for {
				mine := int(number.Add(1)) - 1
				if mine >= next.Calls {
					return
				}
				asked := time.Now()
				_, err := a.call(server, next.RPC, next.First+mine)
				found.Micros[mine] = float64(time.Since(asked).Nanoseconds()) / 1000
				if err != nil {
					lock.Lock()
					found.Errors++
					found.LastError = err.Error()
					lock.Unlock()
				}
			}
		})
	}
	waiting.Wait()
	found.Seconds = time.Since(began).Seconds()
	return found
}

// call makes the call about the node or the group of that number. The message is made for each call, as the autoscaler
// does, and its maps are written in the order in which Go gives them: another one each time.
func (a *asking) call(server *server, rpc string, number int) (proto.Message, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch rpc {
	case "NodeGroupForNode":
		node := &a.fleet.Nodes[number%len(a.fleet.Nodes)]
		return server.calls.NodeGroupForNode(ctx, &protos.NodeGroupForNodeRequest{Node: &protos.ExternalGrpcNode{
			ProviderID:  node.ProviderID,
			Name:        node.Name,
			Labels:      node.Labels,
			Annotations: node.Annotations,
		}})
	case "NodeGroupGetOptions":
		return server.calls.NodeGroupGetOptions(ctx, &protos.NodeGroupAutoscalingOptionsRequest{
			Id: a.fleet.Groups[number%len(a.fleet.Groups)],
			Defaults: &protos.NodeGroupAutoscalingOptions{ // the defaults of the autoscaler's flags
				ScaleDownUtilizationThreshold:    0.5,
				ScaleDownGpuUtilizationThreshold: 0.5,
				ScaleDownUnneededDuration:        durationpb.New(10 * time.Minute),
				ScaleDownUnreadyDuration:         durationpb.New(20 * time.Minute),
				MaxNodeProvisionDuration:         durationpb.New(15 * time.Minute),
			},
		})
	}
	return nil, fmt.Errorf("no call: %q", rpc)
}
