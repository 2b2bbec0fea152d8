// Command server is what a user would run instead of cloudgraft: the autoscaler's own gRPC wrapper, as its example
// serves it, over a cloud provider that has everything in memory. It prints its address, and ends when its input does.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"

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
	server := grpc.NewServer(options...)
	protos.RegisterCloudProviderServer(server, wrapper.NewCloudProviderGrpcWrapper(newProvider(machines)))
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		server.Stop()
	}()
	fmt.Println(listener.Addr())
	return server.Serve(listener)
}
