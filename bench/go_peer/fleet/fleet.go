// Package fleet reads what the server and the load client have in common: the nodes, and the certificates.
package fleet

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Node is a machine as the autoscaler knows it.
type Node struct {
	Name        string            `json:"name"`
	ProviderID  string            `json:"providerID"`
	Group       string            `json:"group"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// Fleet is all that is asked about.
type Fleet struct {
	Groups []string `json:"groups"`
	Nodes  []Node   `json:"nodes"`
}

// Read reads a fleet from a JSON file.
func Read(path string) (*Fleet, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	fleet := &Fleet{}
	return fleet, json.Unmarshal(data, fleet)
}

// Certificate reads the certificate of "server" or "client" and the authority of both, as `cloudgraft certs init`
// writes them.
func Certificate(directory, whose string) (tls.Certificate, *x509.CertPool, error) {
	file := func(name string) string { return filepath.Join(directory, name) }
	certificate, err := tls.LoadX509KeyPair(file(whose+".crt"), file(whose+".key"))
	if err != nil {
		return certificate, nil, err
	}
	authority, err := os.ReadFile(file("ca.crt"))
	if err != nil {
		return certificate, nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return certificate, nil, fmt.Errorf("no certificate in %s", file("ca.crt"))
	}
	return certificate, pool, nil
}
