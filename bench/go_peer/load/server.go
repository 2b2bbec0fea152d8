package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log"
	"net"
	"time"

	"cloudgraft.example/go_peer/fleet"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
)

const (
	atATime    = 5  // machines that one step of the churn asks for
	stepsLater = 10 // they are deleted again
)

// server is one that is asked: over one connection for what is measured, and over another for changes.
type server struct {
	calls   protos.CloudProviderClient
	changes protos.CloudProviderClient
	old     map[string]bool // providerIDs that stay
	grown   []string        // groups, the first that was asked for more in front
	next    int
	stop    chan struct{}
	done    chan *result
}

func connect(address, certificates string) (*server, error) {
	secured := insecure.NewCredentials()
	if certificates != "" {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		certificate, pool, err := fleet.Certificate(certificates, "client")
		if err != nil {
			return nil, err
		}
		secured = credentials.NewTLS(&tls.Config{
			ServerName: host, Certificates: []tls.Certificate{certificate}, RootCAs: pool,
		})
	}
	var clients [2]protos.CloudProviderClient
	for number := range clients {
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(secured))
		if err != nil {
			return nil, err
		}
		clients[number] = protos.NewCloudProviderClient(connection)
	}
	return &server{calls: clients[0], changes: clients[1]}, nil
}

// setChurn ends the churn that there is, tells what it did, and begins another one.
func (s *server) setChurn(machines *fleet.Fleet, stepsPerSecond int) *result {
	found := &result{}
	if s.stop != nil {
		close(s.stop)
		found, s.stop = <-s.done, nil
	}
	if stepsPerSecond > 0 {
		s.stop, s.done = make(chan struct{}), make(chan *result, 1)
		go s.churn(machines, time.Second/time.Duration(stepsPerSecond), s.stop, s.done)
	}
	return found
}

// churn asks for machines in one group after another, and deletes those that it asked for a while ago.
func (s *server) churn(machines *fleet.Fleet, pause time.Duration, stop chan struct{}, done chan *result) {
	if s.old == nil {
		s.old = map[string]bool{}
		for _, node := range machines.Nodes {
			s.old[node.ProviderID] = true
		}
	}
	found := &result{}
	ticks := time.NewTicker(pause)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			done <- found
			return
		case <-ticks.C:
			if err := s.step(machines, found); err != nil {
				found.Errors++
				found.LastError = err.Error()
				log.Print(err)
			}
		}
	}
}

func (s *server) step(machines *fleet.Fleet, found *result) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	group := machines.Groups[s.next%len(machines.Groups)]
	s.next++
	asked := &protos.NodeGroupIncreaseSizeRequest{Id: group, Delta: atATime}
	if _, err := s.changes.NodeGroupIncreaseSize(ctx, asked); err != nil {
		return fmt.Errorf("%s cannot grow: %w", group, err)
	}
	found.Created += atATime
	s.grown = append(s.grown, group)
	if len(s.grown) <= stepsLater {
		return nil
	}
	group, s.grown = s.grown[0], s.grown[1:]
	answer, err := s.changes.NodeGroupNodes(ctx, &protos.NodeGroupNodesRequest{Id: group})
	if err != nil {
		return fmt.Errorf("%s cannot be looked at: %w", group, err)
	}
	delete := &protos.NodeGroupDeleteNodesRequest{Id: group}
	for _, one := range answer.GetInstances() {
		isRunning := one.GetStatus().GetInstanceState() == protos.InstanceStatus_instanceRunning
		if isRunning && !s.old[one.GetId()] {
			node := &protos.ExternalGrpcNode{Name: one.GetId(), ProviderID: one.GetId()}
			delete.Nodes = append(delete.Nodes, node)
		}
	}
	if len(delete.Nodes) == 0 {
		return nil
	}
	if _, err := s.changes.NodeGroupDeleteNodes(ctx, delete); err != nil {
		return fmt.Errorf("%s cannot shrink: %w", group, err)
	}
	found.Deleted += len(delete.Nodes)
	return nil
}
