// Command server is what a user would run instead of cloudgraft: the autoscaler's own gRPC wrapper, as its example
// serves it, over a cloud provider that has everything in memory. It prints its address, for each line of its input how
// many calls it has answered, and ends when its input does.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"sync/atomic"

	"cloudgraft.example/go_peer/fleet"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/examples/external-grpc-cloud-provider-service/wrapper"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider/externalgrpc/protos"
)

func main() {
	file := flag.String("fleet", "", "the fleet, JSON")
	certificates := flag.String("certificates", "", "directory of the certificates; plaintext without")
	flag.Parse()
	if err := serve(*file, *certificates); err != nil {
		log.Fatal(err)
	}
}

func serve(file, certificates string) error {
	machines, err := fleet.Read(file)
	if err != nil {
		return err
	}
	var options []grpc.ServerOption
	if certificates != "" {
		certificate, pool, err := fleet.Certificate(certificates, "server")
		if err != nil {
			return err
		}
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{
			ClientAuth:   tls.RequireAndVerifyClientCert,
			Certificates: []tls.Certificate{certificate},
			ClientCAs:    pool,
		})))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var answered atomic.Uint64
	count := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		answered.Add(1)
		return next(ctx, request)
	}
	server := grpc.NewServer(append(options, grpc.UnaryInterceptor(count))...)
	protos.RegisterCloudProviderServer(server, wrapper.NewCloudProviderGrpcWrapper(newProvider(machines)))
	go func() {
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println(answered.Load())
		}
		server.Stop()
	}()
	fmt.Println(listener.Addr())
	return server.Serve(listener)
}
