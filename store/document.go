package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

var timeType = reflect.TypeFor[time.Time]()

// micros is a time as a column keeps it; the zero time is 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// encode gives the document of v, which must be a pointer, after turning every time in it to UTC.
func encode(v any) (string, error) {
	inUTC(reflect.ValueOf(v).Elem())
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("encoding %T: %w", v, err)
	}
	return string(b), nil
}

// inUTC turns the times a struct holds, directly or in structs, pointers and slices, to UTC in place.
func inUTC(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		if v.Type() == timeType {
			v.Set(reflect.ValueOf(v.Interface().(time.Time).UTC()))
			return
		}
		for i := range v.NumField() {
			if f := v.Field(i); f.CanSet() {
				inUTC(f)
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			inUTC(v.Elem())
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			for i := range v.Len() {
				inUTC(v.Index(i))
			}
		}
	}
}

func decode[T any](doc string) (*T, error) {
	var v T
	if err := json.Unmarshal([]byte(doc), &v); err != nil {
		return nil, fmt.Errorf("decoding %T: %w", v, err)
	}
	return &v, nil
}

// document reads the one document a query selects; sql.ErrNoRows when there is none.
func document[T any](tx *txn, query string, args ...any) (*T, error) {
	var doc string
	if err := tx.QueryRow(query, args...).Scan(&doc); err != nil {
		return nil, err
	}
	return decode[T](doc)
}

// documents reads the documents a query selects.
func documents[T any](tx *txn, query string, args ...any) ([]T, error) {
	rows, err := tx.Query(query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		var doc sql.RawBytes
		if err := rows.Scan(&doc); err != nil {
			return nil, err
		}
		all = append(all, *new(T))
		if err := json.Unmarshal(doc, &all[len(all)-1]); err != nil {
			return nil, fmt.Errorf("decoding %T: %w", all[0], err)
		}
	}
	return all, rows.Err()
}

// removed turns a DELETE that met no row into NotFound.
func removed(tx *txn, noun, id, query string, args ...any) error {
	res, err := tx.Exec(query, args...)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return notFound(orNoRows(err), noun, id)
	}
	return nil
}

func orNoRows(err error) error {
	if err != nil {
		return err
	}
	return sql.ErrNoRows
}
