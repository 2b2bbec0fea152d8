// A vCenter that is played by govmomi's simulator, the same that the program vcsim runs.
//
// The module of vcsim itself is not published where modules are had from; its library is. Beside what the simulator
// does by itself, a judge can tell it, at /judge, how long clones take and how they fail.
package main

import (
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
)

// What clones come to, while a judge wants it so.
type trouble struct {
	sync.Mutex
	fault types.BaseMethodFault
	late  bool // the virtual machine is made, and then it fails: it could not be switched on
}

func (t *trouble) current() (types.BaseMethodFault, bool) {
	t.Lock()
	defer t.Unlock()
	return t.fault, t.late
}

var faults = map[string]types.BaseMethodFault{
	"ConcurrentAccess":                 &types.ConcurrentAccess{},
	"InsufficientMemoryResourcesFault": &types.InsufficientMemoryResourcesFault{},
	"NoDiskSpace":                      &types.NoDiskSpace{Datastore: "LocalDS_0"},
	"NoPermission":                     &types.NoPermission{PrivilegeId: "VirtualMachine.Provisioning.DeployTemplate"},
	"NotEnoughLicenses":                &types.NotEnoughLicenses{},
	"SystemError":                      &types.SystemError{Reason: "the judge wanted it"},
}

// A template whose clones may fail in their task, as they do in a vCenter.
type template struct {
	*simulator.VirtualMachine
	trouble *trouble
}

func (t *template) CloneVMTask(ctx *simulator.Context, req *types.CloneVM_Task) soap.HasFault {
	fault, late := t.trouble.current()
	if fault == nil {
		return t.VirtualMachine.CloneVMTask(ctx, req)
	}
	if late {
		req.Spec.PowerOn = false
		made := t.VirtualMachine.CloneVMTask(ctx, req).(*methods.CloneVM_TaskBody)
		ctx.Map.Get(made.Res.Returnval).(*simulator.Task).Wait()
	}
	failed := simulator.CreateTask(req.This, "cloneVm", func(*simulator.Task) (types.AnyType, types.BaseMethodFault) {
		return nil, fault
	})
	return &methods.CloneVM_TaskBody{Res: &types.CloneVM_TaskResponse{Returnval: failed.Run(ctx)}}
}

// Whatever is done to the object goes to the one that is wrapped.
func (t *template) Reference() types.ManagedObjectReference { return t.VirtualMachine.Reference() }

var _ mo.Reference = (*template)(nil)

func judge(model *simulator.Model, t *trouble) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		t.Lock()
		defer t.Unlock()
		t.fault, t.late = faults[query.Get("fault")], query.Get("late") != ""
		delay, _ := strconv.Atoi(query.Get("delay"))
		// Without the hand-off nobody can read the template while it is cloned.
		simulator.TaskDelay.MethodDelay = map[string]int{"CloneVm": delay, "LockHandoff": 0}
		if name := query.Get("template"); name != "" {
			for _, one := range model.Map().All("VirtualMachine") {
				if vm, ok := one.(*simulator.VirtualMachine); ok && vm.Name == name {
					model.Map().Put(&template{vm, t})
				}
			}
		}
		fmt.Fprintln(w, "done")
	}
}

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	cert := flag.String("cert", "", "the certificate")
	key := flag.String("key", "", "its key")
	user := flag.String("user", "", "who may log in")
	version := flag.Bool("version", false, "only say what this is")
	model := simulator.VPX()
	flag.IntVar(&model.ClusterHost, "host", 3, "hosts")
	flag.Parse()
	if *version {
		fmt.Println(model.ServiceContent.About.FullName)
		return
	}
	model.Pod, model.Datastore = 1, 2
	defer model.Remove()
	if err := model.Create(); err != nil {
		log.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(*cert, *key)
	if err != nil {
		log.Fatal(err)
	}
	model.Service.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	// The password comes by the environment, where no list of processes shows it.
	model.Service.Listen = &url.URL{Host: *listen, User: url.UserPassword(*user, os.Getenv("VCSIM_PASSWORD"))}
	model.Service.HandleFunc("/judge", judge(model, new(trouble)))
	server := model.Service.NewServer()
	defer server.Close()
	fmt.Println(server.URL.Host)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	<-stop
}
