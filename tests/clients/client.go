// client [URL]: sends six tokens to the demo model, prints which token each one takes most from.
package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// Tensor is a tensor object; encoding/json reads and writes []byte as the base64 that it holds.
type Tensor struct {
	Shape []int  `json:"shape"`
	Dtype string `json:"dtype"`
	Data  []byte `json:"data"`
}

func tensor(rows [][]float32) Tensor {
	t := Tensor{Shape: []int{len(rows), len(rows[0])}, Dtype: "float32"}
	for _, row := range rows {
		for _, v := range row {
			t.Data = binary.LittleEndian.AppendUint32(t.Data, math.Float32bits(v))
		}
	}
	return t
}

func (t Tensor) floats() []float32 {
	x := make([]float32, len(t.Data)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return x
}

func post(url string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	for left := 5; ; left-- {
		response, err := http.Post(url, "application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return err
		}
		if response.StatusCode == http.StatusOK {
			return json.Unmarshal(text, answer)
		}
		if response.StatusCode != http.StatusServiceUnavailable || left == 0 {
			return fmt.Errorf("%s: %s", response.Status, text)
		}
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		if err != nil {
			seconds = 1
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

func main() {
	url := "http://127.0.0.1:8080"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	words := strings.Fields("the cat sat on the mat")
	x := [][]float32{
		{1, 0, 0, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
		{1, 1, 1, 0, 1, 0, 0, 0, -1, 1, -1, -1, -1, -1, -1, -1},
		{1, 2, 4, 0, 0, 1, 0, 0, 1, 1, 1, -1, -1, -1, -1, -1},
		{1, 3, 9, 0, 0, 0, 1, 0, 1, -1, 1, 1, -1, -1, -1, -1},
		{1, 4, 16, 1, 0, 0, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1},
		{1, 5, 25, 0, 1, 0, 0, 0, -1, -1, 1, -1, -1, -1, -1, -1},
	}
	request := map[string]any{
		"inputs_embeds":     tensor(x),
		"return_attentions": map[string]any{"heads": []int{0}},
		"encoding_format":   "base64",
	}
	var answer struct{ Outputs, Attentions Tensor }
	if err := post(url+"/v1/models/demo/attention", request, &answer); err != nil {
		log.Fatal(err)
	}
	attention := answer.Attentions.floats()
	for i, word := range words {
		row := attention[i*len(words) : (i+1)*len(words)]
		best := 0
		for j, weight := range row {
			if weight > row[best] {
				best = j
			}
		}
		fmt.Printf("%s looks at %s: %.4f\n", word, words[best], row[best])
	}
	sum := 0.0
	for _, v := range answer.Outputs.floats() {
		sum += float64(v)
	}
	fmt.Printf("outputs [%d,%d], sum %.4f\n", answer.Outputs.Shape[0], answer.Outputs.Shape[1], sum)
}
