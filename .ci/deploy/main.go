// Command deploy checks the files of cmd/outmill/deploy with the parsers of their tools:
// BuildKit's for the Dockerfile, Compose's for the compose file, Kubernetes' own types for
// the manifest. No container runs. It is a module of its own and not in go.work, so that
// the versions of these large modules do not move those of Outmill.
//
//	cd .ci/deploy && GOWORK=off go run . ../../cmd/outmill/deploy
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: deploy DIRECTORY")
		os.Exit(2)
	}
	dir := os.Args[1]
	failed := false
	for _, check := range []struct {
		file  string
		check func(file string) error
	}{
		{"Dockerfile", dockerfile}, {"compose.yaml", compose}, {"kubernetes.yaml", kubernetes},
	} {
		if err := check.check(filepath.Join(dir, check.file)); err != nil {
			failed = true
			fmt.Fprintf(os.Stderr, "%s: %v\n", check.file, err)
			continue
		}
		fmt.Printf("%s is well-formed\n", check.file)
	}
	if failed {
		os.Exit(1)
	}
}

// dockerfile parses the instructions, and checks that the image runs without root, shell and cgo.
func dockerfile(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	parsed, err := parser.Parse(bytes.NewReader(text))
	if err != nil {
		return err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return err
	}
	if len(stages) != 2 {
		return fmt.Errorf("it has %d stages: want one that builds and one that runs", len(stages))
	}
	if len(parsed.Warnings) > 0 {
		return fmt.Errorf("the parser warns: %v", parsed.Warnings)
	}
	user, entry := "", []string{}
	for _, command := range stages[1].Commands {
		switch command := command.(type) {
		case *instructions.UserCommand:
			user = command.User
		case *instructions.EntrypointCommand:
			entry = command.CmdLine
		case *instructions.RunCommand:
			return errors.New("the stage that runs has no shell for RUN")
		case *instructions.CopyCommand:
			if command.From != stages[0].Name {
				return fmt.Errorf("it copies from the stage %q, which does not exist", command.From)
			}
		}
	}
	if user == "" || user == "root" || user[0] == '0' {
		return fmt.Errorf("it runs as the user %q: want one that is not root", user)
	}
	if len(entry) != 1 || entry[0] != "/outmill" {
		return fmt.Errorf("its entry point is %q: want /outmill", entry)
	}
	return nil
}

// compose loads the file as docker compose does, with the schema of the specification.
func compose(file string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(filepath.Dir(file)))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	service, err := project.GetService("outmill")
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(service.Build.Context, service.Build.Dockerfile)); err != nil {
		return fmt.Errorf("the Dockerfile of the build: %w", err)
	}
	return nil
}

// kubernetes decodes each document strictly into its type, so that a wrong or misspelt field
// is an error, and checks what a schema cannot say.
func kubernetes(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(appsv1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	deployments, configs := 0, map[string]bool{}
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return err
		}
		switch object := object.(type) {
		case *corev1.ConfigMap:
			configs[object.Name] = true
		case *appsv1.Deployment:
			deployments++
			if err := deployment(object, configs); err != nil {
				return err
			}
		}
	}
	if deployments != 1 {
		return fmt.Errorf("it has %d deployments: want 1", deployments)
	}
	return nil
}

func deployment(d *appsv1.Deployment, configs map[string]bool) error {
	for name, value := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[name] != value {
			return fmt.Errorf("the selector %s=%s does not select its pods", name, value)
		}
	}
	if err := scraped(d.Spec.Template); err != nil {
		return err
	}
	pod := d.Spec.Template.Spec
	for _, volume := range pod.Volumes {
		if volume.ConfigMap != nil && !configs[volume.ConfigMap.Name] {
			return fmt.Errorf("the volume %s is of a ConfigMap that the file lacks", volume.Name)
		}
	}
	for _, container := range pod.Containers {
		ports := map[string]bool{}
		for _, port := range container.Ports {
			ports[port.Name] = true
		}
		for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.StrVal] {
				return fmt.Errorf("the container %s lacks a probe, or its port", container.Name)
			}
		}
		if limit := container.Resources.Limits.Memory(); limit.Cmp(resource.MustParse("64Mi")) < 0 {
			return fmt.Errorf("the container %s has the memory limit %s: want 64Mi or more", container.Name, limit)
		}
	}
	return nil
}

// scraped checks that the annotations lead Prometheus to a port of the pod.
func scraped(pod corev1.PodTemplateSpec) error {
	port := pod.Annotations["prometheus.io/port"]
	if pod.Annotations["prometheus.io/scrape"] != "true" || pod.Annotations["prometheus.io/path"] != "/metrics" {
		return errors.New("the pods lack the annotations prometheus.io/scrape and prometheus.io/path")
	}
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if strconv.Itoa(int(p.ContainerPort)) == port {
				return nil
			}
		}
	}
	return fmt.Errorf("the annotation prometheus.io/port is %q, which is no port of a container", port)
}
