package main

import (
	"fmt"
	"sync"
	"time"

	"cloudgraft.example/go_peer/fleet"
	apiv1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/autoscaler/cluster-autoscaler/cloudprovider"
	"k8s.io/autoscaler/cluster-autoscaler/config"
	"k8s.io/autoscaler/cluster-autoscaler/simulator/framework"
	"k8s.io/autoscaler/cluster-autoscaler/utils/errors"
)

const (
	maxSize      = 100_000
	unneededTime = 24 * time.Hour // what every group has of its own, on the other side too; no node goes meanwhile
)

// provider has its groups in memory: machines are there and gone at once.
type provider struct {
	lock   sync.RWMutex
	groups []cloudprovider.NodeGroup
	group  map[string]*group // by the providerID of a machine
	made   int
}

type group struct {
	id        string
	provider  *provider
	instances map[string]struct{} // providerIDs
}

func newProvider(machines *fleet.Fleet) *provider {
	p := &provider{group: map[string]*group{}}
	byID := map[string]*group{}
	for _, id := range machines.Groups {
		byID[id] = &group{id: id, provider: p, instances: map[string]struct{}{}}
		p.groups = append(p.groups, byID[id])
	}
	for _, node := range machines.Nodes {
		p.group[node.ProviderID] = byID[node.Group]
		byID[node.Group].instances[node.ProviderID] = struct{}{}
	}
	return p
}

func (p *provider) Name() string                          { return "memory" }
func (p *provider) NodeGroups() []cloudprovider.NodeGroup { return p.groups }
func (p *provider) GPULabel() string                      { return "" }
func (p *provider) Cleanup() error                        { return nil }
func (p *provider) Refresh() error                        { return nil }

func (p *provider) NodeGroupForNode(node *apiv1.Node) (cloudprovider.NodeGroup, error) {
	p.lock.RLock()
	defer p.lock.RUnlock()
	if found, ok := p.group[node.Spec.ProviderID]; ok {
		return found, nil
	}
	return nil, nil
}

func (p *provider) HasInstance(node *apiv1.Node) (bool, error) {
	p.lock.RLock()
	defer p.lock.RUnlock()
	_, ok := p.group[node.Spec.ProviderID]
	return ok, nil
}

func (p *provider) Pricing() (cloudprovider.PricingModel, errors.AutoscalerError) {
	return nil, cloudprovider.ErrNotImplemented
}

func (p *provider) GetAvailableMachineTypes() ([]string, error) { return nil, nil }

func (p *provider) NewNodeGroup(string, map[string]string, map[string]string, []apiv1.Taint,
	map[string]resource.Quantity) (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

func (p *provider) GetResourceLimiter() (*cloudprovider.ResourceLimiter, error) { return nil, nil }
func (p *provider) GetAvailableGPUTypes() map[string]struct{}                   { return nil }
func (p *provider) GetNodeGpuConfig(*apiv1.Node) *cloudprovider.GpuConfig       { return nil }

func (g *group) MaxSize() int          { return maxSize }
func (g *group) MinSize() int          { return 0 }
func (g *group) Id() string            { return g.id }
func (g *group) Debug() string         { return g.id + " (memory)" }
func (g *group) Exist() bool           { return true }
func (g *group) Delete() error         { return cloudprovider.ErrNotImplemented }
func (g *group) Autoprovisioned() bool { return false }

func (g *group) Create() (cloudprovider.NodeGroup, error) {
	return nil, cloudprovider.ErrNotImplemented
}

func (g *group) TargetSize() (int, error) {
	g.provider.lock.RLock()
	defer g.provider.lock.RUnlock()
	return len(g.instances), nil
}

func (g *group) IncreaseSize(delta int) error {
	g.provider.lock.Lock()
	defer g.provider.lock.Unlock()
	for range delta {
		g.provider.made++
		id := fmt.Sprintf("memory://new-%d", g.provider.made)
		g.instances[id] = struct{}{}
		g.provider.group[id] = g
	}
	return nil
}

func (g *group) AtomicIncreaseSize(int) error { return cloudprovider.ErrNotImplemented }

func (g *group) DeleteNodes(nodes []*apiv1.Node) error {
	g.provider.lock.Lock()
	defer g.provider.lock.Unlock()
	for _, node := range nodes {
		id := node.Spec.ProviderID
		if _, ok := g.instances[id]; !ok {
			return fmt.Errorf("%s is not in %s", id, g.id)
		}
		delete(g.instances, id)
		delete(g.provider.group, id)
	}
	return nil
}

func (g *group) ForceDeleteNodes(nodes []*apiv1.Node) error { return g.DeleteNodes(nodes) }
func (g *group) DecreaseTargetSize(int) error               { return cloudprovider.ErrNotImplemented }

func (g *group) Nodes() ([]cloudprovider.Instance, error) {
	g.provider.lock.RLock()
	defer g.provider.lock.RUnlock()
	instances := make([]cloudprovider.Instance, 0, len(g.instances))
	for id := range g.instances {
		status := &cloudprovider.InstanceStatus{State: cloudprovider.InstanceRunning}
		instances = append(instances, cloudprovider.Instance{Id: id, Status: status})
	}
	return instances, nil
}

func (g *group) TemplateNodeInfo() (*framework.NodeInfo, error) {
	return nil, cloudprovider.ErrNotImplemented
}

func (g *group) GetOptions(defaults config.NodeGroupAutoscalingOptions) (*config.NodeGroupAutoscalingOptions, error) {
	defaults.ScaleDownUnneededTime = unneededTime
	return &defaults, nil
}
